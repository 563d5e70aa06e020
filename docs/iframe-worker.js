// Search on pages that are opened from the disk: browsers start no worker from file:, so a hidden frame runs its script.
// The theme knows this class by its name: what IFrameWorker is a property of is the window of the page.
window.IFrameWorker = class extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.scope = frame.contentWindow;
    this.scope.postMessage = (data) => setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));
    this.scope.importScripts = (...urls) => urls.reduce((before, each) => before.then(() => load(frame, each)), Promise.resolve());
    this.loading = load(frame, url);
  }

  postMessage(data) {
    this.loading.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) })));
  }
};

/** Run a script in a frame; the promise is kept once it has run. */
function load(frame, url) {
  return new Promise((resolve, reject) => {
    const script = frame.contentDocument.createElement("script");
    Object.assign(script, { src: url, onload: resolve, onerror: reject });
    frame.contentDocument.body.append(script);
  });
}

if (location.protocol === "file:") window.Worker = window.IFrameWorker;
