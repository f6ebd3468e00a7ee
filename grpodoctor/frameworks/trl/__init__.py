"""TRL (also Unsloth and Axolotl)."""
