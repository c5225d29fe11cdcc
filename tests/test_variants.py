"""What is compared: variants, and one more for each sync that is dropped alone."""

import pytest

from helpers.plans import model_plan
from syncscope.app.variants import REFERENCE, each_dropped, plan_variant, preset_variant
from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.passes.drop_sites import sync_sites
from syncscope.sched_core.records import PHASES
from syncscope.sched_core.verdict import analyse

BASELINE = model_plan()


def ids(variant, *sites, rules="practical"):
    return [each.id for each in each_dropped(BASELINE, variant, sites, rules)]


@pytest.mark.parametrize("rules", ["practical", "strict"])
def test_safe_gives_the_syncs_that_the_analysis_calls_safe_alone(rules):
    analysis = analyse(plan_variant(BASELINE, REFERENCE).plan, rules)
    unsafe = {each.site for each in analysis.findings if not each.alone_safe}
    everywhere = dict.fromkeys(each.site for each in analysis.findings)
    expected = [f"baseline -{site}" for site in everywhere if site not in unsafe]
    assert ids(REFERENCE, "safe", rules=rules) == expected
    assert len(expected) == 17


def test_each_variant_lacks_its_own_sync_in_every_phase_and_no_other():
    reference = plan_variant(BASELINE, REFERENCE).plan
    for variant in each_dropped(BASELINE, REFERENCE, ["safe"]):
        planned = plan_variant(BASELINE, variant)
        site = variant.id.removeprefix("baseline -")
        gone = set(sync_sites(reference)) - set(sync_sites(planned.plan))
        assert gone == set(planned.dropped) != set()
        assert {each.partition(":")[2] for each in gone} == {site}


def test_a_phase_drops_it_there_alone():
    (variant,) = each_dropped(BASELINE, REFERENCE, ["decode:logits.get1.sync"])
    assert variant.id == "baseline -decode:logits.get1.sync"
    assert plan_variant(BASELINE, variant).dropped == ("decode:logits.get1.sync",)


def test_a_star_gives_a_variant_per_site_that_matches_and_each_once():
    names = [f"logits.get{i}.sync" for i in range(5)]
    assert ids(REFERENCE, "logits.get*", "logits.get3.sync") == [
        f"baseline -{name}" for name in names
    ]
    assert ids(REFERENCE, "decode:logits.get*") == [f"baseline -decode:{name}" for name in names]


def test_what_was_dropped_before_stays_dropped():
    variant = preset_variant("baseline", drop=["logits.get1.sync"])
    found = each_dropped(BASELINE, variant, ["safe"])
    assert "baseline -drop -logits.get1.sync" not in [each.id for each in found]
    assert "baseline -drop -logits.get2.sync" in [each.id for each in found]
    for each in found:
        units = plan_variant(BASELINE, each).dropped
        assert {"decode:logits.get1.sync"} < set(units)
        assert {unit.partition(":")[0] for unit in units} <= set(PHASES)


def test_a_sync_that_is_needed_is_refused_unless_hazards_are_allowed():
    needed = "input.out_ids.sync_after"
    assert f"baseline -{needed}" not in ids(REFERENCE, "safe")
    (variant,) = each_dropped(BASELINE, REFERENCE, [needed])
    with pytest.raises(UsageError, match=rf"baseline: --drop {needed} is refused"):
        plan_variant(BASELINE, variant)
    allowed = preset_variant("baseline", allow_hazards=True)
    (variant,) = each_dropped(BASELINE, allowed, [needed])
    assert plan_variant(BASELINE, variant).dropped


def test_where_no_sync_can_go_there_is_no_variant_more():
    assert each_dropped(BASELINE, preset_variant("all"), ["safe"]) == ()


def test_a_site_that_is_none_is_refused_by_the_option_that_named_it():
    with pytest.raises(UsageError, match=r"--drop-each logits\.get9\.sync: no such sync site"):
        each_dropped(BASELINE, REFERENCE, ["logits.get9.sync"])
    with pytest.raises(UsageError, match="--drop-each dekode:x: unknown phase"):
        each_dropped(BASELINE, REFERENCE, ["dekode:x"])
