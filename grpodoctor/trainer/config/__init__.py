"""The trainer's configuration: sections, presets, knobs, validation."""
