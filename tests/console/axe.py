"""axe-core in a page: what it finds against WCAG 2, A and AA."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe

LEVELS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
# Those of them that look at colours: the only ones to which a page in another theme is another page.
OF_COLOURS = ("color-contrast", "link-in-text-block")

# To preload what a stylesheet imports axe would add a style, which the policy forbids; no rule of these needs it.
# A colour that is still on its way from one theme to the other has no contrast worth measuring.
FINDINGS = """async (which) => {
    for (const each of document.getAnimations()) each.finish();
    const options = { ...which, resultTypes: ["violations"], preload: false };
    const { violations } = await axe.run(document, options);
    return violations.flatMap((each) => each.nodes.map((node) =>
        `${each.id}: ${node.target} ${node.html.slice(0, 200)} ${node.failureSummary.replace(/\\s+/g, " ")}`));
}"""


def findings(page: Any, about: object = "", *, colours: bool = True, others: bool = True) -> list[str]:
    """A line for each element at fault, by the rules of `colours`, the `others`, or all of them.

    The script gets in past the Content-Security-Policy, which stays as it is.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
    which: dict[str, Any] = {"runOnly": list(LEVELS if others else OF_COLOURS)}
    if not colours:
        which["rules"] = {rule: {"enabled": False} for rule in OF_COLOURS}
    return [f"{about}: {each}" for each in page.evaluate(FINDINGS, which)]
