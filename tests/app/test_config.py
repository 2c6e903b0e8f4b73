import subprocess
import sys

import pytest

from prolip.app.config import AppConfig


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.53"])
def test_local_hosts_need_no_password(host):
    assert AppConfig(host=host).is_local


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_other_hosts_need_a_password_or_a_clear_yes(host):
    with pytest.raises(ValueError, match=r"--auth USER:PASSWORD, or --open-to-network"):
        AppConfig(host=host)
    assert not AppConfig(host=host, auth="me:secret").is_local
    assert not AppConfig(host=host, open_to_network=True).is_local


@pytest.mark.parametrize("auth", ["", "me", "me:", ":secret"])
def test_auth_without_user_or_password_is_refused(auth):
    with pytest.raises(ValueError, match="USER:PASSWORD"):
        AppConfig(auth=auth)


def test_password_may_hold_colons():
    assert AppConfig(auth="me:a:b").credentials == ("me", "a:b")


@pytest.mark.parametrize("port", [-1, 65536])
def test_ports_are_checked(port):
    with pytest.raises(ValueError, match="port must be"):
        AppConfig(port=port)


def test_help_imports_neither_torch_nor_gradio():
    code = (
        "import sys\nfrom prolip.cli import main\n"
        "try:\n    main(['app', '--help'])\nexcept SystemExit: pass\n"
        "assert not {'torch', 'gradio', 'lancedb'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--database" in result.stdout
    assert "--auth" in result.stdout
