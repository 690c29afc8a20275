"""Two recorded runs in a Space: both rewards rise, and one of the two policies has stopped answering.

The runs are those of `tiltmeter demo`; each is written by `tiltmeter report --to`, as one page that loads nothing
from anywhere and runs in a frame of its own. Nothing of a visitor is stored, and nothing that a visitor types is run.
"""

import html
import subprocess
import sys
from pathlib import Path

import gradio as gr

TITLE = "Is the reward still telling the truth?"
ABOUT = f"""# {TITLE}

Two training runs of one small policy that learns to add, from the same seed. In one of them the reward model can be
bought with compliments. By the reward alone the hacked run is the better one.
[Tiltmeter](https://pypi.org/project/tiltmeter/) measured both step by step, as it would have live.
"""


def tiltmeter(*words, may=(0,)):
    """What the command prints; it raises where the exit code is another than expected."""
    done = subprocess.run([sys.executable, "-m", "tiltmeter", *words], capture_output=True, text=True)
    if done.returncode not in may:
        raise RuntimeError(f"tiltmeter {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def prepare(folder):
    """The recorded runs and their pages, made once, when the Space starts: by name, the lines and the page."""
    runs = folder / "runs"
    if not runs.exists():
        tiltmeter("demo", "--keep", str(runs))
    shown = {}
    for run in sorted(runs.iterdir()):
        page = folder / "pages" / run.name
        tiltmeter("report", str(run), "--to", str(page), "--replace", may=(0, 1))
        shown[run.name] = (tiltmeter("show", str(run), "--plain", may=(0, 1)), (page / "index.html").read_text("utf-8"))
    return shown


def frame(page):
    """The page in a frame that may run its own script and reach nothing else."""
    style = "width:100%;height:80vh;border:1px solid #8884;border-radius:6px"
    return f'<iframe sandbox="allow-scripts" title="The run" style="{style}" srcdoc="{html.escape(page)}"></iframe>'


def build(shown):
    with gr.Blocks(title=TITLE) as app:
        gr.Markdown(ABOUT)
        first = next(iter(shown))
        choice = gr.Radio(list(shown), value=first, label="Run")
        lines = gr.Textbox(shown[first][0], label="tiltmeter show", lines=5, interactive=False)
        page = gr.HTML(frame(shown[first][1]))
        choice.change(lambda name: (shown[name][0], frame(shown[name][1])), choice, [lines, page])
    return app


if __name__ == "__main__":
    build(prepare(Path("demo"))).launch()
