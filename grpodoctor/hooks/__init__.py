"""Live hooks: record, diagnose and treat a run from inside its own trainer."""
