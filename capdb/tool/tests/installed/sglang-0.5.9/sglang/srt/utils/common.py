is_sm90_supported = cached(partial(check, device_capability_majors=[9]))
is_sm100_supported = cached(partial(check, device_capability_majors=[10]))
