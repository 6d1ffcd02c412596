"""Tables and figures of the papers as data: what was run, and the figures that were published."""
