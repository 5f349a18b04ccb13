"""No verb, or one that is not there."""

from __future__ import annotations

from tests.faults.bad_inputs.row import row

ROWS = (
    row("", "", says="there is no verb ''"),
    row("trian", says="did you mean 'train'?"),
    row("[red]", says="there is no verb '[red]'"),
    row("", "\x1b[31mtrain", says=r"there is no verb '\x1b[31mtrain'"),
    row("--verbose", says="there is no option --verbose before a verb; did you mean '--version'?"),
    row("--hepl", says="there is no option --hepl before a verb; did you mean '--help'?"),
)
