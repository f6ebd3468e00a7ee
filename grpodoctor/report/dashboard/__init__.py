"""How the dashboard words and arranges what `monitor` computes."""
