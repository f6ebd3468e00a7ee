"""Why two engines differ: by experiment where one can be made, by signature where not."""
