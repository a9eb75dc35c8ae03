// A page that was opened as a file may start no worker. The search is one: here it runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.body.appendChild(document.createElement("iframe"));
      this.frame.hidden = true;
      const inside = this.frame.contentWindow;
      // Later, as a worker's messages come: while it renders, the page takes none.
      inside.postMessage = (data) => setTimeout(() => this.onmessage?.({ data: structuredClone(data) }));
      const script = inside.document.createElement("script");
      script.src = url;
      this.loaded = new Promise((resolve) => (script.onload = resolve));
      inside.document.body.append(script);
    }
    postMessage(data) {
      const sent = structuredClone(data);
      this.loaded.then(() => setTimeout(() => this.frame.contentWindow?.onmessage({ data: sent })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
