import signal

from remote.yolov9.interrupt import Interrupt


def test_a_signal_is_remembered_and_nothing_else_happens():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    interrupt = Interrupt()
    try:
        interrupt.install()
        assert not interrupt.requested
        signal.raise_signal(signal.SIGTERM)
        assert interrupt.requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
