"""Recording a run: handing over steps, the writer process, the run directory."""
