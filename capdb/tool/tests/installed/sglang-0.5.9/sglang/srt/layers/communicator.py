_is_sm90_supported = is_sm90_supported()
_is_sm100_supported = is_sm100_supported()


def fuses(tokens):
    return (_is_sm90_supported or _is_sm100_supported) and tokens > 0
