"""The bundled GRPO trainer."""
