"""What `mixer doctor` says of Prefect, held to Prefect itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mixer.checkup.prefect_server import prefect_checks
from mixer.checkup.prefect_settings import prefect_setting
from tests.flows.prefect_server import PrefectServer, bare_environment

pytestmark = pytest.mark.flows

PLACES = ("environment", "dotenv", "prefect.toml", "pyproject.toml", "profile")
"""Where Prefect may be told of its server: what comes first counts."""
ASK = """
import json, os, sys
from prefect.settings import get_current_settings
os.chdir("..")
said = {}
for place in sys.argv[1:]:
    os.chdir(place)
    os.environ.pop("PREFECT_API_URL", None)
    if place.startswith("environment"):
        os.environ["PREFECT_API_URL"] = "http://environment/api"
    os.environ["PREFECT_HOME"] = os.path.abspath("home")
    from prefect.settings import Settings
    said[place] = Settings().api.url
    os.chdir("..")
print(json.dumps(said))
"""


def lay_out(folder: Path, place: str) -> None:
    """Tell Prefect of its server in one way."""
    folder.mkdir(exist_ok=True)
    (folder / "home").mkdir(exist_ok=True)
    if place == "dotenv":
        (folder / ".env").write_text("OTHER=1\nPREFECT_API_URL='http://dotenv/api'\n")
    if place == "prefect.toml":
        (folder / "prefect.toml").write_text('[api]\nurl = "http://prefect.toml/api"\n')
    if place == "pyproject.toml":
        (folder / "pyproject.toml").write_text('[tool.prefect.api]\nurl = "http://pyproject.toml/api"\n')
    if place == "profile":
        profile = 'active = "mine"\n[profiles.mine]\nPREFECT_API_URL = "http://profile/api"\n'
        (folder / "home/profiles.toml").write_text(profile)


def test_the_address_is_found_where_prefect_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {f"{PLACES[first]}-{len(PLACES) - first}": PLACES[first:] for first in range(len(PLACES))}
    folders |= {f"{place}-alone": (place,) for place in PLACES} | {"nothing": ()}
    for name, places in folders.items():
        (tmp_path / name).mkdir()
        for place in places:
            lay_out(tmp_path / name, place)
    asked = subprocess.run(
        [sys.executable, "-c", ASK, *folders],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path / "nothing",
        env=bare_environment(tmp_path / "nothing"),
    )
    said = json.loads(asked.stdout)
    assert said["nothing"] is None
    assert said["environment-5"] == "http://environment/api"
    for name in folders:
        monkeypatch.chdir(tmp_path / name)
        monkeypatch.setenv("PREFECT_HOME", str(tmp_path / name / "home"))
        if name.startswith("environment"):
            monkeypatch.setenv("PREFECT_API_URL", "http://environment/api")
        else:
            monkeypatch.delenv("PREFECT_API_URL", raising=False)
        found = prefect_setting("PREFECT_API_URL")
        assert (found[0] if found else None) == said[name], name


def test_a_real_server_is_well(prefect_server: PrefectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", prefect_server.api_url)
    address, server = prefect_checks()
    assert (address.state, server.state) == ("ok", "ok")
    assert server.found.startswith("answers, version ")
