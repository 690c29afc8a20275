export function Compare({ params }: { params: URLSearchParams }) {
  return <p class="empty">{params.getAll("run").length} runs</p>;
}
