"""Terms added to the task's reward before it becomes an advantage, one file each."""
