// Browsers start no worker for a page that is read from disk; the site's search wants one. Here the worker's script
// runs in a hidden frame instead, with the few things of a worker's that the search uses.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.answer(data);
      const script = (address) => new Promise((loaded, failed) => {
        const tag = frame.contentDocument.createElement("script");
        tag.onload = loaded;
        tag.onerror = () => failed(new Error(`cannot load ${address}`));
        tag.src = address;
        frame.contentDocument.body.appendChild(tag);
      });
      this.inside.importScripts = (...all) =>
        all.reduce((before, one) => before.then(() => script(one)), Promise.resolve());
      this.ready = script(url);
      this.frame = frame;
    }

    answer(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
