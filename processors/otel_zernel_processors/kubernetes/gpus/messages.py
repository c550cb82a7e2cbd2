"""The messages of the kubelet's pod-resources API that are read.

The numbers are those of pkg/apis/podresources/v1/api.proto in the kubelet. Other fields are skipped.
"""

from typing import Final

from otel_zernel_libraries.protobuf import declared_file, message_of

LIST: Final = "/v1.PodResourcesLister/List"
_FILE: Final = declared_file(
    "podresources.proto",
    "v1",
    {
        "ListPodResourcesRequest": "",
        "ListPodResourcesResponse": "1 PodResources* pod_resources",
        "PodResources": "1 string name; 2 string namespace; 3 ContainerResources* containers",
        "ContainerResources": "1 string name; 2 ContainerDevices* devices; 5 DynamicResource* dynamic_resources",
        "ContainerDevices": "1 string resource_name; 2 string* device_ids",
        "DynamicResource": "2 string claim_name; 3 string claim_namespace; 4 ClaimResource* claim_resources",
        "ClaimResource": "2 string driver_name; 3 string pool_name; 4 string device_name",
    },
)
ListPodResourcesResponse = message_of(_FILE, "ListPodResourcesResponse")
