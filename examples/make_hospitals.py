"""Draw hospitals.csv: 1,500 made-up patients of five hospitals that differ in size, patients and practice.

No record is of a real person. `python make_hospitals.py` writes the same file every time.
"""

from pathlib import Path

import numpy as np

# Patients; their mean age, body mass index and share of smokers; days that the hospital keeps everybody longer.
HOSPITALS = {
    "north": (420, 66, 27.0, 0.15, 0.0),
    "south": (360, 58, 29.0, 0.30, 0.8),
    "east": (300, 49, 25.0, 0.20, -0.5),
    "west": (240, 72, 26.0, 0.10, 1.5),
    "centre": (180, 55, 31.0, 0.40, 0.3),
}

draw = np.random.default_rng(2024)
lines = ["hospital,age,bmi,pressure,glucose,smoker,readmitted,days"]
for name, (patients, age, bmi, smokers, longer) in HOSPITALS.items():
    for _ in range(patients):
        years = float(np.clip(draw.normal(age, 12), 18, 99))
        mass = float(np.clip(draw.normal(bmi, 4), 15, 55))
        smokes = int(draw.random() < smokers)
        pressure = draw.normal(100 + 0.4 * years + 0.5 * mass, 12)
        glucose = max(3.0, draw.normal(3.4 + 0.09 * mass, 1.0))
        risk = (years - 60) / 12 + (glucose - 6) + 0.9 * smokes + (pressure - 138) / 25 - 0.6
        back = int(draw.random() < 1 / (1 + np.exp(-1.3 * risk)))
        days = max(0.5, 4 + 0.05 * (years - 60) + 0.8 * (glucose - 6) + 1.2 * smokes + longer + draw.normal(0, 1))
        lines.append(f"{name},{years:.0f},{mass:.1f},{pressure:.0f},{glucose:.1f},{smokes},{back},{days:.1f}")
Path(__file__).with_name("hospitals.csv").write_text("\n".join(lines) + "\n")
