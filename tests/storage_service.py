"""A storage service on this machine: `python tests/storage_service.py start --port=PORT`."""

from gcp_storage_emulator.handlers import objects

_download = objects.download


def download(request, response, storage, *rest, **options):
    """Sends an object with its generation, which tensorstore requires and the emulator omits."""
    objects_of_bucket = storage.objects.get(request.params["bucket_name"], {})
    if described := objects_of_bucket.get(request.params["object_id"]):
        response["x-goog-generation"] = described["generation"]
    _download(request, response, storage, *rest, **options)


# The emulator looks its handlers up while it is imported.
objects.download = download

if __name__ == "__main__":
    from gcp_storage_emulator.__main__ import main

    main()
