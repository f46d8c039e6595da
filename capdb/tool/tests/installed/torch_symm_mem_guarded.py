class TorchSymmMemCommunicator:
    _WORLD_SIZES_MULTIMEM = {9: [4, 6, 8]}

    def __init__(self, major, ranks, handle):
        sizes = TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES.get(major)
        if sizes is None:
            logger.warning('not known')
            return
        if handle.multicast_ptr == 0:
            logger.warning('no multicast')
            return

    def all_reduce(self, major, ranks):
        return ranks in self._WORLD_SIZES_MULTIMEM.get(major, ())
