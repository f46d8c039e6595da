class TorchSymmMemCommunicator:
    _WORLD_SIZES_MULTIMEM = {9: [4, 6, 8]}

    def __init__(self, major, ranks, handle):
        self.major = major
        if self.major < 9:
            logger.warning('too old')
            return
        if ranks not in TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES[self.major]:
            return
        if handle.multicast_ptr == 0:
            logger.warning('no multicast')
            return

    def all_reduce(self, ranks):
        return ranks in self._WORLD_SIZES_MULTIMEM[self.major]
