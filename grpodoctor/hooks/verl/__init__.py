"""The hook for verl: a plugin that registers observed policy losses."""
