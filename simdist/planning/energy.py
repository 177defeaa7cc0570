"""Energy: the hours of devices that a run takes, the energy that these need, and the greenhouse gases of making it.

    operations / rate  =  device hours  x  watts  x  PUE  =  energy  x  kg per kWh  =  emissions
                               |
                               | x  price of one  =  cost
                               | / devices / 24   =  days

Device hours hold for any number of devices, if each is as fast. Watts are the average of a device, with its share of
the host and the network, or its maker's limit: V100 300, A100 400, H100 700.

Source: Patterson et al. 2021, arXiv 2104.10350, section 2; Touvron et al. 2023, arXiv 2302.13971, section 6.
"""

from simdist.errors import as_declared, require_least, require_more

__all__ = ["carbon_kg", "device_hours", "energy_kwh"]


@as_declared
def device_hours(flops: float, flops_per_s: float) -> float:
    """The hours of a single device for this many operations; of GPT-3's 3.14e23 on V100s 3.5 million.

    Args:
        flops: of the whole run, such as `simdist.nn.formulas.training_flops`.
        flops_per_s: the rate that a device reaches: its peak times the MFU; in GPT-3's case 24.6e12.

    Raises:
        ArgumentError: flops_per_s is not above 0.
    """
    require_more("flops_per_s", flops_per_s, 0)
    return flops / flops_per_s / 3600


@as_declared
def energy_kwh(device_hours: float, watts: float, pue: float = 1.0) -> float:
    """The kilowatt hours that devices need, with what their building needs for each: 1.29 million for GPT-3.

    Args:
        device_hours: of all devices together.
        watts: of one device, on average.
        pue: the power usage effectiveness, all energy over that of the machines; 1.1 in the papers above.

    Raises:
        ArgumentError: pue is less than 1.
    """
    require_least("pue", pue, 1)
    return device_hours * watts / 1000 * pue


@as_declared
def carbon_kg(energy_kwh: float, kg_per_kwh: float) -> float:
    """The carbon dioxide equivalent of this energy, 552 tonnes for GPT-3.

    Args:
        kg_per_kwh: of the grid at that place and time; for the USA 0.429 and 0.385 in the two papers above.
    """
    return energy_kwh * kg_per_kwh
