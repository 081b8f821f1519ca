"""What anybody may send or damage, as functions of bytes: hypothesis runs them briefly, atheris at length."""
