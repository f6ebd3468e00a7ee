"""The bundled trainer."""
