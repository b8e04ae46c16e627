"""The page in Debian's chromium, driven through chromedriver by the W3C's WebDriver protocol: pointed at, chosen from, read."""

import json
import shutil
import socket
import subprocess
import time
import urllib.request

import numpy as np
import pytest

from regard.insight.heatmap import Heatmap
from regard.insight.look import Chance
from regard.insight.maps import AttentionMap
from regard.insight.page import PageFigure, html

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no chromium and chromedriver: apt-get install chromium-driver"
)
SOURCE, TARGET = ["canis", "</script><script>document.title='run'</script>", "我"], ["the", "dog"]
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1000,900"]


class Browser:
    """A session of WebDriver."""

    def __init__(self, port):
        self.url = f"http://localhost:{port}/session"
        options = {"binary": CHROMIUM, "args": ARGUMENTS}
        found = self.ask("", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}})
        self.url += f"/{found['sessionId']}"

    def ask(self, path, body=None, method="POST"):
        data = json.dumps(body if body is not None else {}).encode() if method == "POST" else None
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def run(self, script):
        return self.ask("/execute/sync", {"script": script, "args": []})

    def point(self, selector, h=0, v=0):
        """Move the mouse to the middle of an element, or so far from it."""
        (element,) = self.ask("/element", {"using": "css selector", "value": selector}).values()
        origin = {"element-6066-11e4-a52e-4f735466cecf": element}
        move = {"type": "pointerMove", "duration": 0, "origin": origin, "x": round(h), "y": round(v)}
        self.ask("/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [move]}]})

    def press(self, *keys):
        each = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.ask("/actions", {"actions": [{"type": "key", "id": "keys", "actions": each}]})

    @property
    def status(self):
        return self.run("return document.querySelector('.status').textContent")


@pytest.fixture(scope="module")
def browser():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen([DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found = None
    for _ in range(300):
        try:
            found = Browser(port)
            break
        except ConnectionError:
            time.sleep(0.1)
        except urllib.error.URLError:
            time.sleep(0.1)
    assert found is not None
    yield found
    found.ask("", method="DELETE")
    driver.terminate()
    driver.wait()


def one_hot(*columns):
    return np.eye(3)[list(columns)] * 0.9


def opened(browser, tmp_path):
    heatmap = Heatmap(SOURCE, TARGET, one_hot(0, 2), "runs/x", gold=frozenset({(0, 0)}))
    heads = [
        AttentionMap("cross", 1, head, Heatmap(SOURCE, TARGET, one_hot(*each))) for head, each in enumerate([(1, 1), (2, 0)], 1)
    ]
    html(
        [
            PageFigure(
                heatmap,
                heads,
                [Chance("the", 0, 0.75, [("the", 0.75), ("a", 0.2), ("an", 0.03), ("one", 0.01)]), Chance("dog", 1, 0.5, [])],
            )
        ],
        tmp_path / "page.html",
    )
    browser.ask("/url", {"url": (tmp_path / "page.html").as_uri()})


def test_a_word_pointed_at_shows_its_links(browser, tmp_path):
    opened(browser, tmp_path)
    browser.point(".row:last-child bdi:nth-child(2)")
    assert browser.status == "dog → 我 0.900; p = 0.500"
    assert browser.run("return document.querySelector('.row bdi.on').textContent") == "dog"
    assert browser.run("return document.querySelectorAll('.strip line').length") == 1
    browser.point(".row:first-child bdi:nth-child(1)")
    assert browser.status == "canis ← the 0.900"
    browser.point("h1")
    assert browser.status == ""


def test_a_head_is_chosen_and_cells_are_read_by_mouse_and_keys(browser, tmp_path):
    opened(browser, tmp_path)
    browser.run("const one = document.querySelector('select.map'); one.value = 'cross'; one.dispatchEvent(new Event('change'))")
    browser.point(".row:last-child bdi:nth-child(1)")
    assert "我 0.450" in browser.status  # the mean of both heads
    browser.run("const one = document.querySelector('select.head'); one.value = '2'; one.dispatchEvent(new Event('change'))")
    browser.point(".row:last-child bdi:nth-child(1)")
    assert browser.status == "the → 我 0.900; p = 0.750, else a 0.200, an 0.030"
    browser.run("document.querySelector('.matrix').focus()")
    browser.press("\ue015")  # down
    assert browser.status.startswith("dog → canis: 0.900")
    browser.press("\ue00c")
    assert browser.status == ""
    caption = "return document.querySelector('figcaption').textContent"
    assert browser.run(caption) == "runs/x: attention to the source, layer 1, head 2"
    assert browser.run("return [...document.querySelectorAll('.told tr')].map((row) => row.textContent)") == [
        "the我 0.900", "dogcanis 0.900",
    ]  # fmt: skip
    assert "head 2" in browser.run("return document.querySelector('.matrix').getAttribute('aria-label')")
    size = browser.run("const at = document.querySelector('canvas').getBoundingClientRect(); return [at.width, at.height]")
    browser.point("canvas", size[0] / 2 - 60, size[1] / 2 - 14)
    assert browser.status.startswith("dog → ")


def test_words_are_read_by_keys(browser, tmp_path):
    opened(browser, tmp_path)
    browser.run("document.querySelector('.row:last-child').focus()")
    browser.press("\ue014", "\ue014")  # right
    assert browser.status == "dog → 我 0.900; p = 0.500"
    browser.press("\ue00c")  # escape
    assert browser.status == ""
    browser.press("\ue012")  # left
    assert browser.status.startswith("the → canis 0.900")


def test_true_links_have_the_colour_of_the_legend(browser, tmp_path):
    opened(browser, tmp_path)
    pixels = (
        "const canvas = document.querySelector('canvas'), scale = window.devicePixelRatio || 1; let found = 0;"
        "const all = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
        "for (let at = 0; at < all.length; at += 4) found += all[at] === 180 && all[at + 1] === 83 && all[at + 2] === 9;"
        "return found / scale"
    )
    known = browser.run(pixels)
    assert browser.run("return getComputedStyle(document.querySelector('.legend')).color") == "rgb(180, 83, 9)"
    browser.run("const one = document.querySelector('select.map'); one.value = 'cross'; one.dispatchEvent(new Event('change'))")
    assert known > 60
    assert browser.run(pixels) == known  # the same two words in every head
    heads = [AttentionMap("encoder", 1, 1, Heatmap(SOURCE, SOURCE, np.eye(3)))]
    html([PageFigure(heads[0].heatmap, heads)], tmp_path / "page.html")
    browser.ask("/url", {"url": (tmp_path / "page.html").as_uri()})
    assert (browser.run(pixels), browser.run("return document.querySelector('.legend')")) == (0, None)


def test_what_words_say_does_not_run(browser, tmp_path):
    opened(browser, tmp_path)
    assert browser.run("return document.title") == "Where the model looked"
    assert browser.run("return document.querySelector('.row:first-child bdi:nth-child(2)').textContent") == SOURCE[1]


def test_five_hundred_words_are_drawn_as_far_as_they_are_seen(browser, tmp_path):
    names = [f"word{number}" for number in range(500)]
    html([PageFigure(Heatmap(names, names, np.eye(500)))], tmp_path / "page.html")
    browser.ask("/url", {"url": (tmp_path / "page.html").as_uri()})
    assert browser.run("return document.querySelector('canvas').width < 1100 && document.querySelector('canvas').height < 1100")
    browser.run("const box = document.querySelector('.matrix'); box.scrollTop = box.scrollLeft = 3000")
    browser.run("document.querySelector('.matrix').scrollIntoView({block: 'center'})")
    browser.point(".matrix canvas")
    row, column = browser.status.split(" → ")
    assert int(row[4:]) > 100
    assert column.startswith("word")
