// A film of a view: its frames are drawn on a canvas while the browser records them. Nothing leaves the machine.
//
//   Film.save({ name, seconds, draw, say })   draw(pen, share) paints one frame, share from 0 to 1; say(sentence) is told
//   Film.picture(svg)                         an SVG, as text, as an image that a pen can draw
(function (root) {
  "use strict";

  const KINDS = { "video/mp4;codecs=avc1.42E01F": "mp4", "video/mp4": "mp4", "video/webm;codecs=vp8": "webm", "video/webm": "webm" };
  const NONE = "This browser cannot record films. A picture can be saved, and other browsers can.";
  const WIDTH = 1280, HEIGHT = 720, PER_SECOND = 30;

  /** The first kind of film that the browser writes, or nothing. */
  function kind() {
    if (typeof MediaRecorder === "undefined" || !HTMLCanvasElement.prototype.captureStream) return undefined;
    return Object.keys(KINDS).find((one) => MediaRecorder.isTypeSupported(one));
  }

  async function picture(svg) {
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
    await image.decode();
    return image;
  }

  let busy = false;

  /** Record, and save the file; what is returned is the film as a Blob, or null where there is none. */
  async function save({ name, seconds = 10, draw, say }) {
    const type = kind();
    if (busy) return null;
    if (!type) {
      say(NONE);
      return null;
    }
    busy = true;
    try {
      const film = await record(type, seconds, draw, say), link = document.createElement("a");
      link.href = URL.createObjectURL(film);
      link.download = `${name}.${KINDS[type]}`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
      say(`The film is saved as ${link.download}.`);
      return film;
    } catch (error) {
      say(`The film could not be recorded: ${error.message}`);
      return null;
    } finally {
      busy = false;
    }
  }

  async function record(type, seconds, draw, say) {
    const canvas = document.createElement("canvas"), pen = canvas.getContext("2d"), parts = [];
    canvas.width = WIDTH;
    canvas.height = HEIGHT;
    await draw(pen, 0);
    const stream = canvas.captureStream(PER_SECOND), recorder = new MediaRecorder(stream, { mimeType: type, videoBitsPerSecond: 4e6 });
    const ended = new Promise((done, failed) => {
      recorder.onstop = done;
      recorder.onerror = ({ error }) => failed(error);
    });
    recorder.ondataavailable = ({ data }) => parts.push(data);
    recorder.start();
    const began = performance.now();
    for (let share = 0, told = -1; share < 1;) {
      await new Promise((next) => setTimeout(next, 1000 / PER_SECOND)); // a tab that is not seen goes on, too
      share = Math.min(1, (performance.now() - began) / (1000 * seconds));
      await draw(pen, share);
      if (Math.floor(share * seconds) === told) continue;
      told = Math.floor(share * seconds);
      say(`Recording: ${told} of ${seconds} seconds.`);
    }
    recorder.stop();
    await ended;
    stream.getTracks().forEach((track) => track.stop());
    return new Blob(parts, { type: type.split(";")[0] });
  }

  root.Film = { save, picture, kind, WIDTH, HEIGHT };
})(globalThis);
