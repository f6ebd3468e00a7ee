"""The screen of `grpodoctor watch`: panes, pages and keys."""
