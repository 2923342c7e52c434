"""Sockets that listen where peers look for them and nowhere else."""

import socket

import pytest

from alphazero.base.errors import LaunchError, PortInUseError
from alphazero.machine.machine import ANY_PORT, is_everywhere, listen_on, names_loopback


@pytest.mark.parametrize(("address", "host"), [("127.0.0.1", "127.0.0.1"), ("127.0.0.7", "127.0.0.7")])
def test_it_listens_on_the_address_itself(address: str, host: str):
    with listen_on(address, ANY_PORT) as listener:
        assert listener.getsockname()[0] == host
        assert not is_everywhere(listener)
        socket.create_connection(listener.getsockname()[:2], 5).close()


def test_an_address_of_another_machine_means_that_routers_translate_it():
    with listen_on("192.0.2.1", ANY_PORT) as listener:
        assert is_everywhere(listener)


def test_the_name_of_a_machine_that_its_hosts_file_gives_the_loopback_is_not_the_loopback(
    monkeypatch: pytest.MonkeyPatch,
):
    debian = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: debian)
    with listen_on("box", ANY_PORT) as listener:
        assert is_everywhere(listener)


def test_a_port_in_use_has_an_error_of_its_own():
    with listen_on("127.0.0.1", ANY_PORT) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"port {port} of 127.0.0.1"):
            listen_on("127.0.0.1", port)


def test_a_name_that_does_not_resolve_is_one_line():
    with pytest.raises(LaunchError, match=r"--master-addr no\.such\.host\.invalid: "):
        listen_on("no.such.host.invalid", ANY_PORT)


def test_the_loopback_is_known_by_its_names():
    assert all(map(names_loopback, ("localhost", "LOCALHOST", "127.0.0.3", "::1")))
    assert not any(map(names_loopback, ("box", "10.0.0.1", "")))
