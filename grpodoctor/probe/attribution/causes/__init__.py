"""One file per cause; see `Cause` in `grpodoctor/probe/attribution/base.py`."""
