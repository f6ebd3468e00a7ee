"""Write a run from inside the trainer."""
