// Replaces Streamlit's message about a lost connection, which speaks of the internet, by one that
// tells what to do.
const THEIRS = /server is not responding/;

export default function ({ data }) {
  const explain = () => {
    for (const dialog of document.querySelectorAll("[data-testid=stDialog]")) {
      const texts = document.createTreeWalker(dialog, NodeFilter.SHOW_TEXT);
      for (let text = texts.nextNode(); text; text = texts.nextNode()) {
        // React keeps the node and removes it with the dialog, so only its content may change.
        if (THEIRS.test(text.nodeValue)) text.nodeValue = data.message;
      }
    }
  };
  const observer = new MutationObserver(explain);
  observer.observe(document.body, { childList: true, subtree: true });
  explain();
  return () => observer.disconnect();
}
