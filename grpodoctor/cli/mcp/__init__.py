"""The MCP server: what agents may ask about the runs below a directory."""
