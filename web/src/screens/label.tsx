export function Label() {
  return <p class="empty">Nothing to label.</p>;
}
