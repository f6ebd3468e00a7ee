"""The probe report in each output format."""
