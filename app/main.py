"""The entry script of the dashboard: `grpodoctor dashboard` runs it with Streamlit.

Streamlit passes the arguments after the script; the only one is `DashboardSettings` as JSON.
"""

from __future__ import annotations

import sys

from grpodoctor.support.programs import load_package

load_package("app", "dashboard").show(sys.argv[1:])
