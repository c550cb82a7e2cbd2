"""The known pods, also those that are gone, found by uid, container or name. No I/O."""

from collections import OrderedDict
from collections.abc import Callable

from otel_zernel_processors.kubernetes.pods.pod import KubernetesPod


class PodTable:
    """A bounded number of pods. A deleted pod keeps its place for a while, unless a new pod needs its room."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._limit = 0
        self._retention = 0.0
        self._monotonic = monotonic
        self._pods: OrderedDict[str, KubernetesPod] = OrderedDict()
        """By uid; the one that was used least lately is the first."""
        self._gone: OrderedDict[str, float] = OrderedDict()
        """The deleted pods, with the time of the deletion."""
        self._by_container: dict[str, str] = {}
        self._by_name: dict[tuple[str, str], str] = {}
        self.forgotten = 0
        """Pods that were forgotten although they were not deleted, because there were too many."""
        self.version = 0
        """Grows with each change."""

    def __len__(self) -> int:
        return len(self._pods)

    def adopt(self, limit: int, retention: float) -> None:
        """Prepares for new sources: at most `limit` pods, and deleted ones for `retention` s.

        The known pods count as deleted until a source names them again.
        """
        self._limit = limit
        self._retention = retention
        for uid in self._pods:
            self.delete(uid)

    def put(self, pod: KubernetesPod) -> None:
        """Adds a pod, or replaces what was known about it."""
        known = self._pods.get(pod.uid)
        if known == pod and pod.uid not in self._gone:
            return
        self.version += 1
        self._gone.pop(pod.uid, None)
        if known:
            self._remove_indexes(known)
        self._pods[pod.uid] = pod
        self._pods.move_to_end(pod.uid)
        self._by_name[(pod.namespace, pod.name)] = pod.uid
        self._by_container.update(dict.fromkeys(pod.containers, pod.uid))
        self._make_room()

    def delete(self, uid: str) -> None:
        """The pod is deleted in Kubernetes. It keeps its name for a while."""
        if uid in self._pods and uid not in self._gone:
            self._gone[uid] = self._monotonic()

    def by_uid(self, uid: str) -> KubernetesPod | None:
        if pod := self._pods.get(uid):
            self._pods.move_to_end(uid)
        return pod

    def by_container(self, id_: str) -> KubernetesPod | None:
        return self.by_uid(self._by_container.get(id_, ""))

    def by_name(self, namespace: str, name: str) -> KubernetesPod | None:
        return self.by_uid(self._by_name.get((namespace, name), ""))

    def expire(self) -> None:
        """Forgets the pods that were deleted more than `retention` s ago."""
        now = self._monotonic()
        while self._gone and now - next(iter(self._gone.values())) > self._retention:
            self._forget(next(iter(self._gone)))

    def _make_room(self) -> None:
        while len(self._pods) > self._limit:
            self.forgotten += not self._gone
            self._forget(next(iter(self._gone)) if self._gone else next(iter(self._pods)))

    def _forget(self, uid: str) -> None:
        self.version += 1
        self._gone.pop(uid, None)
        self._remove_indexes(self._pods.pop(uid))

    def _remove_indexes(self, pod: KubernetesPod) -> None:
        if self._by_name.get((pod.namespace, pod.name)) == pod.uid:
            del self._by_name[(pod.namespace, pod.name)]
        for id_ in pod.containers:
            if self._by_container.get(id_) == pod.uid:
                del self._by_container[id_]
