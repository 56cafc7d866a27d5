"""Image and wheel keys."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import skill_bank
from tao_sdk import versions
from tao_sdk.errors import TaoError, ValidationError
from tao_sdk.versions import (
    KeyNotFoundError,
    ManifestNotFoundError,
    load_manifest,
    looks_like_key,
    resolve_container_image,
    resolve_image,
    resolve_wheel,
)

SOURCES = Path(versions.__file__).resolve().parents[1]

MANIFEST: dict[str, Any] = {
    "images": {
        "tao_toolkit": {"pyt": "registry.example/tao:1-pyt", "deploy": "registry.example/tao:1-d"},
        "my-tools": {"base": "registry.example/tools:2"},
        "base": "registry.example/base:3",
        "broken": {"number": 7, "blank": " ", "nothing": None},
    },
    "wheels": {"sdk": "some-sdk==1.2"},
}


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which no manifest can be found."""
    for name in ("TAO_VERSIONS_FILE", "TAO_SKILL_BANK_PATH"):
        monkeypatch.delenv(name, raising=False)
    empty = tmp_path / "empty"
    (empty / "home").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(empty / "home"))
    monkeypatch.chdir(empty)
    monkeypatch.setattr(versions, "_PACKAGED_BANK", empty / "bank")
    return empty


def write(path: Path, manifest: object = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(MANIFEST if manifest is None else manifest), encoding="utf-8")
    return path


class TestResolving:
    @pytest.mark.seed("000.17")
    @pytest.mark.parametrize(
        ("value", "image"),
        [
            ("tao_toolkit.pyt", "registry.example/tao:1-pyt"),
            ("my-tools.base", "registry.example/tools:2"),
            ("base", "registry.example/base:3"),
            (
                "nvcr.io/nvidia/tao/tao-toolkit:7.0.1-pyt",
                "nvcr.io/nvidia/tao/tao-toolkit:7.0.1-pyt",
            ),
            ("localhost:5000/x", "localhost:5000/x"),
            ("ubuntu:24.04", "ubuntu:24.04"),
            ("ubuntu", "ubuntu"),
            ("my-image", "my-image"),
            ("python3.11", "python3.11"),
            ("", ""),
        ],
    )
    def test_keys_and_images(self, value: str, image: str) -> None:
        """Lesson F5: a plain word is an image unless the manifest has it as a key."""
        assert resolve_container_image(value, MANIFEST) == image

    def test_a_hyphenated_key_that_is_missing_is_not_an_image(self) -> None:
        """Lesson F5: it raises and names the key that was meant."""
        with pytest.raises(KeyNotFoundError, match=r"did you mean 'tao_toolkit\.pyt'"):
            resolve_container_image("tao-toolkit.pyt", MANIFEST)

    def test_an_unknown_key_shows_what_there_is(self) -> None:
        with pytest.raises(KeyNotFoundError, match=r"images key 'zzz\.qqq'.*tao_toolkit\.deploy"):
            resolve_container_image("zzz.qqq", MANIFEST)
        with pytest.raises(KeyNotFoundError, match=r"wheels key 'sdkk'.*'sdk'"):
            resolve_wheel("sdkk", MANIFEST)

    def test_an_unknown_key_in_an_empty_manifest(self) -> None:
        with pytest.raises(KeyNotFoundError, match=r"no images key 'a\.b'"):
            resolve_image("a.b", {})

    def test_wheels(self) -> None:
        assert resolve_wheel("sdk", MANIFEST) == "some-sdk==1.2"

    @pytest.mark.parametrize(
        ("key", "message"),
        [
            ("tao_toolkit", r"group: choose one of tao_toolkit\.deploy, tao_toolkit\.pyt"),
            ("tao_toolkit.pyt.x", r"'tao_toolkit\.pyt' in versions\.yaml is a version already"),
            ("broken.number", "must be a non-empty text, not 7"),
            ("broken.blank", "must be a non-empty text"),
            ("broken.nothing", "must be a non-empty text, not None"),
        ],
    )
    def test_what_is_not_a_version(self, key: str, message: str) -> None:
        with pytest.raises(TypeError, match=message) as caught:
            resolve_image(key, MANIFEST)
        assert isinstance(caught.value, ValidationError)

    def test_a_section_that_is_no_mapping(self) -> None:
        with pytest.raises(TypeError, match=r"'images' in versions\.yaml must be a mapping"):
            resolve_image("a.b", {"images": ["a.b"]})

    def test_a_group_given_as_an_image_raises(self) -> None:
        with pytest.raises(TypeError, match="group"):
            resolve_container_image("tao_toolkit", MANIFEST)

    @pytest.mark.parametrize(
        ("value", "is_key"),
        [
            ("tao_toolkit.pyt", True),
            ("tao-toolkit.pyt", True),
            ("a.b.c", True),
            ("ubuntu", False),
            ("python3.11", False),
            ("a..b", False),
            ("a.b:1", False),
            ("reg/a.b", False),
            ("", False),
            (None, False),
        ],
    )
    def test_what_is_clearly_a_key(self, value: object, is_key: bool) -> None:
        assert looks_like_key(value) is is_key

    @pytest.mark.seed("000.17")
    def test_every_key_of_a_real_bank_resolves(self) -> None:
        manifest = load_manifest(skill_bank() / "versions.yaml")
        keys = list(versions._leaf_keys(manifest["images"]))
        assert keys
        for key in keys:
            assert ":" in resolve_container_image(key, manifest)
        for key in versions._leaf_keys(manifest["wheels"]):
            assert "==" in resolve_wheel(key, manifest)


class TestDiscovery:
    def test_the_order(self, nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        places = [
            nowhere / "explicit.yaml",
            nowhere / "variable.yaml",
            nowhere / "versions.yaml",
            nowhere / "mybank" / "versions.yaml",
            nowhere / "home" / "tao-skills-external" / "versions.yaml",
            nowhere / "bank" / "versions.yaml",
        ]
        for number, place in enumerate(places):
            write(place, {"found": number})
        monkeypatch.setenv("TAO_VERSIONS_FILE", str(places[1]))
        monkeypatch.setenv("TAO_SKILL_BANK_PATH", str(places[3].parent))
        assert load_manifest(str(places[0])) == {"found": 0}
        assert load_manifest() == {"found": 1}
        monkeypatch.delenv("TAO_VERSIONS_FILE")
        for number in (2, 3, 4, 5):
            assert load_manifest() == {"found": number}
            places[number].unlink()
        with pytest.raises(ManifestNotFoundError) as caught:
            load_manifest()
        assert all(str(place) in str(caught.value) for place in places[2:])

    def test_nothing_found_is_both_of_our_tree_and_a_missing_file(self) -> None:
        with pytest.raises(FileNotFoundError, match="TAO_VERSIONS_FILE"):
            load_manifest()
        with pytest.raises(TaoError):
            resolve_image("a.b")

    def test_an_explicit_path_must_exist(self, nowhere: Path) -> None:
        with pytest.raises(ManifestNotFoundError, match=r"missing\.yaml is not a file"):
            load_manifest(nowhere / "missing.yaml")

    @pytest.mark.parametrize("value", ["missing.yaml", "."])
    def test_a_set_but_missing_variable_is_an_error(
        self, nowhere: Path, monkeypatch: pytest.MonkeyPatch, value: str
    ) -> None:
        """Lesson F6: it is named, not skipped, even if another manifest is at hand."""
        write(nowhere / "versions.yaml")
        monkeypatch.setenv("TAO_VERSIONS_FILE", value)
        with pytest.raises(ManifestNotFoundError, match="TAO_VERSIONS_FILE="):
            load_manifest()
        with pytest.raises(ManifestNotFoundError, match="TAO_VERSIONS_FILE="):
            resolve_container_image("ubuntu")

    def test_images_need_no_manifest_and_keys_do(self) -> None:
        assert resolve_container_image("ubuntu") == "ubuntu"
        assert resolve_container_image("reg/x:1") == "reg/x:1"
        with pytest.raises(ManifestNotFoundError):
            resolve_container_image("tao_toolkit.pyt")

    def test_a_discovered_manifest_is_used(self, nowhere: Path) -> None:
        write(nowhere / "versions.yaml")
        assert resolve_container_image("base") == "registry.example/base:3"
        assert resolve_image("tao_toolkit.pyt") == "registry.example/tao:1-pyt"
        assert resolve_wheel("sdk") == "some-sdk==1.2"


class TestReading:
    def test_edits_are_noticed(self, nowhere: Path) -> None:
        """Lesson F6: the cache follows the file, also after a replacement of equal size."""
        path = write(nowhere / "versions.yaml", {"images": {"base": "x:1"}})
        assert resolve_container_image("base") == "x:1"
        replacement = write(nowhere / "new.yaml", {"images": {"base": "x:2"}})
        stat = path.stat()
        os.utime(replacement, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        replacement.replace(path)
        assert resolve_container_image("base") == "x:2"
        write(path, {"images": {"base": "x:10"}})
        assert resolve_container_image("base") == "x:10"

    def test_an_unchanged_file_is_parsed_once(
        self, nowhere: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = write(nowhere / "versions.yaml")
        load_manifest(path)
        monkeypatch.setattr(yaml, "safe_load", lambda _: pytest.fail("parsed again"))
        assert load_manifest(path) == MANIFEST

    def test_the_answer_is_the_callers_own(self, nowhere: Path) -> None:
        """Lesson F6: changing one answer changes no other."""
        path = write(nowhere / "versions.yaml")
        load_manifest(path)["images"]["tao_toolkit"]["pyt"] = "changed"
        assert load_manifest(path) == MANIFEST

    def test_an_empty_file_is_an_empty_manifest(self, nowhere: Path) -> None:
        path = nowhere / "versions.yaml"
        path.write_text("# nothing yet\n", encoding="utf-8")
        assert load_manifest(path) == {}

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"- a\n- b\n", "expected a mapping.*found list"),
            (b"a: [\n", "is not valid YAML"),
            (b"a: \xff\n", "is not valid YAML"),
        ],
    )
    def test_a_file_that_is_no_manifest(self, nowhere: Path, content: bytes, message: str) -> None:
        path = nowhere / "versions.yaml"
        path.write_bytes(content)
        with pytest.raises(ValidationError, match=message) as caught:
            load_manifest(path)
        assert str(path) in str(caught.value)

    def test_importing_does_not_load_yaml(self) -> None:
        program = "import sys, tao_sdk.versions; sys.exit('yaml' in sys.modules)"
        environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
        finished = subprocess.run([sys.executable, "-c", program], check=False, env=environment)
        assert finished.returncode == 0
