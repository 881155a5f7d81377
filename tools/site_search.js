// The theme's search by words needs a worker and a request, which browsers refuse for pages opened from a file.
// There: a hidden frame in place of the worker, and the index as a script. Not: the search itself (the theme's).
var __search = {};
if (location.protocol === "file:") {
  const site = new URL(".", document.currentScript.src);
  __search.index = new Promise((found) => {
    window.__search_index = found;
    const script = document.createElement("script");
    script.src = new URL("search/search_index.js", site);
    document.head.append(script);
  });
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = new Promise((loaded) => {
        const script = this.inside.document.createElement("script");
        script.src = url;
        script.onload = loaded;
        this.inside.document.body.append(script);
      });
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
