"""For all tests."""

import signal
import threading

if threading.current_thread() is threading.main_thread():
    # A shell starts what it puts into the background with Ctrl-C ignored, and so would be every
    # process that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
