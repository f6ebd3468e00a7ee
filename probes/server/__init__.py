"""HTTP servers as engines."""
