"""Profiles: the shipped ones, files of others, and one line for each way a file can be wrong."""

import json
from dataclasses import fields, replace
from importlib import resources

import pytest

from helpers.plans import PROFILE
from syncscope.kernels.cuda_launch import SOURCE_OF
from syncscope.sched_core.errors import FileError, UsageError
from syncscope.sched_core.profile import (
    FIGURES,
    PROFILES,
    STATUSES,
    Profile,
    load_profile,
    parse_profile,
    profile_rows,
    render_profile,
)

WHOLE = json.loads(render_profile(PROFILE))
SCALED = {
    "name": "half", "device_name": "half a GPU", "status": "estimated", "source": "by guess",
    "scaled_from": "h200", "ratios": {"device_bytes_per_ns": 0.5, "kernels": 2},
}  # fmt: skip


def shipped(name):
    path = resources.files("syncscope.sched_core") / "profiles" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def parse(data):
    return parse_profile(json.dumps(data).encode())


@pytest.mark.parametrize("name", PROFILES)
def test_every_shipped_profile_is_complete_and_says_where_its_figures_come_from(name):
    profile = load_profile(name)
    assert profile.name == name
    assert profile.status in STATUSES
    assert profile.device_name and profile.source
    assert all(getattr(profile, each) >= 0 for each in FIGURES)
    assert all(ns > 0 for ns in profile.kernels.values())


def test_shipped_profiles_know_kernels_and_nothing_of_models_or_presets():
    known = {source.removesuffix(".cu") for source in SOURCE_OF.values()}
    for name in PROFILES:
        assert set(load_profile(name).kernels) <= known
    assert set(shipped("h200")) == {each.name for each in fields(Profile)}


def test_a_device_of_which_nothing_was_measured_is_scaled_and_estimated():
    data, base, found = shipped("rtx3090"), load_profile("h200"), load_profile("rtx3090")
    assert data["scaled_from"] == "h200" and found.status == "estimated"
    for each in FIGURES:
        ratio = data["ratios"].get(each, 1.0)
        assert getattr(found, each) == pytest.approx(getattr(base, each) * ratio), each
    assert found.kernels == {
        name: ns * data["ratios"]["kernels"] for name, ns in base.kernels.items()
    }


def test_profiles_are_listed_with_their_status():
    rows = {row["profile"]: row["status"] for row in profile_rows()}
    assert rows == {name: load_profile(name).status for name in PROFILES}
    assert rows["rtx3090"] == "estimated"
    assert rows["h200"] != "estimated"


def test_an_unknown_profile_names_the_nearest():
    with pytest.raises(UsageError, match=r"unknown profile h20; did you mean h200\?.*\.json"):
        load_profile("h20")


def test_what_is_written_is_read_back():
    profile = replace(PROFILE, kernels={"a": 12.5}, switch_ns=1 / 3)
    found = parse_profile(render_profile(profile).encode())
    assert found == replace(profile, switch_ns=0.333333)


def test_a_file_is_a_profile_too(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(render_profile(PROFILE), encoding="utf-8")
    assert load_profile(str(path)) == PROFILE


def test_a_scaled_profile_multiplies_what_it_names():
    base, found = load_profile("h200"), parse(SCALED)
    assert (found.name, found.status) == ("half", "estimated")
    assert found.device_bytes_per_ns == base.device_bytes_per_ns / 2
    assert found.kernels == {name: 2 * ns for name, ns in base.kernels.items()}
    assert found.kernel_ns == base.kernel_ns


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"host_ns": None}, "host_ns is None, not a number"),
        ({"host_ns": "12"}, "host_ns is '12', not a number"),
        ({"host_ns": True}, "host_ns is True, not a number"),
        ({"host_ns": -1}, "host_ns is -1, outside 0..1e\\+09"),
        ({"sync_return_ns": 1e12}, "sync_return_ns is 1000000000000.0, outside"),
        ({"h2d_bytes_per_ns": 0}, "h2d_bytes_per_ns is 0, outside 0.001"),
        ({"l2_nbytes": -5}, "l2_nbytes is -5, outside"),
        ({"kernels": 3}, "kernels is 3, not an object"),
        ({"kernels": {"qkv": -2}}, "kernels.qkv is -2, outside"),
        ({"kernels": {"a\nb": "x"}}, r"kernels.a\\nb is 'x', not a number"),
        ({"status": "guessed"}, "status is 'guessed', not calibrated or provisional or estimated"),
        ({"name": ""}, "name is no line of text"),
        ({"source": "two\nlines"}, "source is no line of text"),
        ({"gpu_ns": 1}, "it has an unknown gpu_ns"),
    ],
)
def test_a_wrong_value_is_one_line(change, complaint):
    with pytest.raises(FileError, match=complaint) as error:
        parse({**WHOLE, **change})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [each.name for each in fields(Profile)])
def test_no_field_may_be_missing(name):
    with pytest.raises(FileError, match=f"it has no {name}"):
        parse({key: value for key, value in WHOLE.items() if key != name})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"ratios": {"device_bytes_per_s": 1}}, "ratios has an unknown device_bytes_per_s"),
        ({"ratios": {"kernels": 0}}, "ratios.kernels is 0, outside"),
        ({"ratios": [1]}, "ratios is .1., not an object"),
        ({"scaled_from": "h100"}, "scaled_from is 'h100', not h200"),
        ({"scaled_from": "rtx3090"}, "scaled itself"),
        ({"host_ns": 1}, "it has an unknown host_ns"),
    ],
)
def test_a_wrong_scaled_profile_is_one_line(change, complaint):
    with pytest.raises(FileError, match=complaint):
        parse({**SCALED, **change})


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "no JSON"),
        (b"{", "cut off or damaged"),
        (b"[1, 2]", "JSON of another kind"),
        (b'{"name": NaN}', "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b" " * (1 << 20) + b"{}", "more than 1048576 bytes"),
    ],
)
def test_a_file_of_another_kind_is_one_line_with_its_path(tmp_path, data, complaint):
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(FileError, match=complaint) as error:
        load_profile(str(path))
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(FileError, match=r"cannot read profile .*: No such file"):
        load_profile(str(tmp_path / "none.json"))
    with pytest.raises(FileError, match=r"cannot read profile .*: Is a directory"):
        load_profile(f"{tmp_path}/")
