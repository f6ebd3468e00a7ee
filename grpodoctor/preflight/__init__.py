"""What can be known of a run before it costs anything."""
