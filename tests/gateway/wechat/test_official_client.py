"""Tencent's own client, of its plug-in for OpenClaw, against the fake, so that the fake does not drift into fiction."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tests import left_out
from tests.fakes.wechat import ANN, FakeWeChat

ROOT = Path(__file__).parents[3]
PACKAGE = Path("node_modules/@tencent-weixin/openclaw-weixin")
INSTALL = "npm install --no-save --ignore-scripts --legacy-peer-deps @tencent-weixin/openclaw-weixin@2.4.9"
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
# What the plug-in imports of OpenClaw and these calls do not need.
STUBS = {
    "account-id": "export const normalizeAccountId = (id) => id;",
    "infra-runtime": (
        "export const withFileLock = (_, __, run) => run();"
        "export const resolvePreferredOpenClawTmpDir = () => process.env.OPENCLAW_STATE_DIR;"
    ),
}
PROGRAM = """
import { readFileSync } from "node:fs";
const from = (path) => import(`./PACKAGE/dist/src/${path}.js`);
const { baseUrl, cdnBaseUrl, token, to, picture, media } = JSON.parse(readFileSync(0, "utf8"));
const api = await from("api/api");
const send = await from("messaging/send");
const upload = await from("cdn/upload");
const { downloadAndDecryptBuffer } = await from("cdn/pic-decrypt");
const opts = { baseUrl, token };
await api.notifyStart(opts);
const updates = await api.getUpdates({ ...opts, get_updates_buf: "", timeoutMs: 20000 });
const contextToken = updates.msgs[0].context_token;
const config = await api.getConfig({ ...opts, ilinkUserId: to, contextToken });
const typing = { ilink_user_id: to, typing_ticket: config.typing_ticket };
await api.sendTyping({ ...opts, body: { ...typing, status: 1 } });
await api.sendTyping({ ...opts, body: { ...typing, status: 2 } });
const sent = await send.sendMessageWeixin({ to, text: "from Tencent's client", opts: { ...opts, contextToken } });
const uploaded = await upload.uploadFileToWeixin({ filePath: picture, toUserId: to, opts, cdnBaseUrl });
await send.sendImageMessageWeixin({ to, text: "", uploaded, opts: { ...opts, contextToken } });
const document = await upload.uploadFileAttachmentToWeixin({
  filePath: picture, fileName: "a.png", toUserId: to, opts, cdnBaseUrl });
await send.sendFileMessageWeixin({ to, text: "", fileName: "a.png", uploaded: document, opts: { ...opts, contextToken } });
const found = await downloadAndDecryptBuffer(media.encrypt_query_param, media.aes_key, cdnBaseUrl, "test");
const code = JSON.parse(await api.apiPostFetch({ baseUrl, endpoint: "ilink/bot/get_bot_qrcode?bot_type=3",
  body: JSON.stringify({ local_token_list: [] }), label: "code" }));
const status = JSON.parse(await api.apiGetFetch({ baseUrl,
  endpoint: `ilink/bot/get_qrcode_status?qrcode=${code.qrcode}`, timeoutMs: 5000, label: "status" }));
await api.notifyStop(opts);
process.stdout.write(JSON.stringify({ message: updates.msgs[0].message_id, text: updates.msgs[0].item_list[0].text_item.text,
  buf: updates.get_updates_buf, sent: sent.serverMessageId, found: found.toString("hex"), status: status.status }));
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the plug-in, and without OpenClaw."""
    if not (ROOT / PACKAGE / "dist").is_dir() or shutil.which("node") is None:
        left_out.skip("Tencent's client for WeChat", why="the plug-in is not installed", command=INSTALL)
    shutil.copytree(ROOT / PACKAGE, tmp_path / PACKAGE)
    openclaw = tmp_path / "node_modules" / "openclaw"
    openclaw.mkdir()
    exports = {f"./plugin-sdk/{name}": f"./{name}.js" for name in STUBS}
    (openclaw / "package.json").write_text(
        json.dumps({"name": "openclaw", "type": "module", "exports": exports})
    )
    for name, source in STUBS.items():
        (openclaw / f"{name}.js").write_text(source)
    (tmp_path / "program.mjs").write_text(PROGRAM.replace("PACKAGE", str(PACKAGE)))
    return tmp_path


def test_tencents_client_talks_with_the_fake(folder: Path) -> None:
    picture = folder / "a.png"
    picture.write_bytes(PICTURE)
    with FakeWeChat() as wechat:
        said = wechat.write(ANN, "hello")
        request = {
            "baseUrl": wechat.url,
            "cdnBaseUrl": wechat.cdn_url,
            "token": wechat.token,
            "to": ANN,
            "picture": str(picture),
            "media": wechat.add_file("p1", PICTURE),
        }
        done = subprocess.run(
            ["node", "program.mjs"],
            cwd=folder,
            input=json.dumps(request),
            env={
                "PATH": "/usr/bin:/bin:/usr/local/bin",
                "OPENCLAW_STATE_DIR": str(folder),
                "HOME": str(folder),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout[done.stdout.index("{") :])
        assert (found["message"], found["text"], found["status"]) == (said, "hello", "wait")
        assert bytes.fromhex(found["found"]) == PICTURE and found["buf"]
        text, image, document = wechat.bubbles
        assert (text.text, text.id, text.token) == ("from Tencent's client", found["sent"], text.newest)
        assert (image.type, image.media) == (2, PICTURE)
        assert (document.type, document.media, document.filename) == (4, PICTURE, "a.png")
        assert wechat.typing == [(ANN, 1), (ANN, 2)] and wechat.notices == ["start", "stop"]
        assert wechat.problems == []
