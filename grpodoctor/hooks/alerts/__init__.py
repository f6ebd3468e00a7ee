"""Sends findings to where people already look: chat, mail, trackers, a command."""
