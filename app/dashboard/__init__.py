"""The pages of the dashboard. Every number comes from `grpodoctor`; nothing is computed here."""

from .shell import show, show_page

__all__ = ["show", "show_page"]
