"""The trainer's configuration: sections, presets, knobs and validation."""
