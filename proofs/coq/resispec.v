(* Algorithm 1 of the paper, once for all arithmetics, and how results over Q pass to every ordered field.

   The algorithm is written over an abstract arithmetic (Section Algorithm). It is instantiated twice: over any
   ordered field F and finite V, where its law is the operational marginal of a sequential rule in the sense of
   laws.v (resispec_marginal), and over Coq's rationals Q with 3 tokens, where it can be computed. The map ofQ from
   Q to F commutes with everything, so what is computed over Q holds over F (computed_law). mathcomp's own
   rationals are no good for this: their fractions are normalised by unary computations.

   The reading is the default one of the documentation: i.i.d. candidates, Z the local gap q(x0) - R(x0), what
   clipping took spread in proportion to the remaining capacity off x0. *)

From Coq Require Import ZArith QArith Lia.
From mathcomp Require Import all_ssreflect all_algebra ring ssrZ.
From Speculative Require Import laws.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.

Section Algorithm.
Variables (A : Type) (zero one : A) (add sub mul div : A -> A -> A) (leb : A -> A -> bool).
Variables (V : eqType) (sum : (V -> A) -> A).
Implicit Types (R q : V -> A).

Definition min_of a b : A := if leb a b then a else b.
Definition pos_of a : A := if leb zero a then a else zero.

(* GetProxy(R, q, x0), lines 17-23. The slack s lives at x0 only, where line 22 overwrites k. *)
Definition gap R q x0 : A := sub (q x0) (R x0).
Definition clipped R q x0 x : A := if x == x0 then zero else min_of (mul (gap R q x0) (q x)) (R x).
Definition delta R q x0 : A := sub (gap R q x0) (sum (clipped R q x0)).
Definition capacity R q x0 x : A := if x == x0 then zero else sub (R x) (clipped R q x0 x).
Definition share R q x0 : A := div (delta R q x0) (sum (capacity R q x0)).
Definition reserve R q x0 x : A := add (clipped R q x0 x) (mul (share R q x0) (capacity R q x0 x)).
Definition proxy R q x0 x : A := if x == x0 then q x else sub (R x) (reserve R q x0 x).

(* Lines 10-12: R <- norm(max(R - k, 0)) *)
Definition excess R q x0 x : A := pos_of (sub (R x) (proxy R q x0 x)).
Definition residual R q x0 x : A := div (excess R q x0 x) (sum (excess R q x0)).

(* Line 6 *)
Definition accept_prob R q x : A := min_of one (div (R x) (q x)).

(* The law of the emitted token with n candidates. *)
Fixpoint algorithm_1 n R q y : A :=
  if n is n'.+1 then
    add (mul (q y) (accept_prob R q y))
      (sum (fun x => mul (mul (q x) (sub one (accept_prob R q x))) (algorithm_1 n' (residual R q x) q y)))
  else R y.

End Algorithm.

(* Two arithmetics, and a map between them. *)
Section Transfer.
Variables (V : eqType) (A B : Type) (f : A -> B).
Variables (zeroA oneA : A) (addA subA mulA divA : A -> A -> A) (lebA : A -> A -> bool) (sumA : (V -> A) -> A).
Variables (zeroB oneB : B) (addB subB mulB divB : B -> B -> B) (lebB : B -> B -> bool) (sumB : (V -> B) -> B).
Hypothesis f_zero : f zeroA = zeroB.
Hypothesis f_one : f oneA = oneB.
Hypothesis f_add : forall a b, f (addA a b) = addB (f a) (f b).
Hypothesis f_sub : forall a b, f (subA a b) = subB (f a) (f b).
Hypothesis f_mul : forall a b, f (mulA a b) = mulB (f a) (f b).
Hypothesis f_div : forall a b, f (divA a b) = divB (f a) (f b).
Hypothesis f_leb : forall a b, lebB (f a) (f b) = lebA a b.
Hypothesis f_sum : forall (g : V -> A) (h : V -> B), (forall x, h x = f (g x)) -> sumB h = f (sumA g).
Variables (q : V -> A) (q' : V -> B).
Hypothesis q'_def : forall x, q' x = f (q x).


Lemma transfer_min a b : min_of lebB (f a) (f b) = f (min_of lebA a b).
Proof. by rewrite /min_of f_leb; case: ifP. Qed.

Lemma transfer_pos a : pos_of zeroB lebB (f a) = f (pos_of zeroA lebA a).
Proof. by rewrite /pos_of -f_zero f_leb; case: ifP. Qed.

Section State.
Variables (R : V -> A) (R' : V -> B).
Hypothesis R'_def : forall x, R' x = f (R x).

Lemma transfer_gap x0 : gap subB R' q' x0 = f (gap subA R q x0).
Proof. by rewrite /gap f_sub q'_def R'_def. Qed.

Lemma transfer_clipped x0 x :
  clipped zeroB subB mulB lebB R' q' x0 x = f (clipped zeroA subA mulA lebA R q x0 x).
Proof. by rewrite /clipped transfer_gap q'_def R'_def -f_mul transfer_min -f_zero; case: (x == x0). Qed.

Lemma transfer_capacity x0 x :
  capacity zeroB subB mulB lebB R' q' x0 x = f (capacity zeroA subA mulA lebA R q x0 x).
Proof. by rewrite /capacity transfer_clipped R'_def -f_sub -f_zero; case: (x == x0). Qed.

Lemma transfer_share x0 :
  share zeroB subB mulB divB lebB sumB R' q' x0 = f (share zeroA subA mulA divA lebA sumA R q x0).
Proof.
by rewrite /share /delta transfer_gap (f_sum (transfer_clipped x0)) (f_sum (transfer_capacity x0)) f_div f_sub.
Qed.

Lemma transfer_proxy x0 x :
  proxy zeroB addB subB mulB divB lebB sumB R' q' x0 x = f (proxy zeroA addA subA mulA divA lebA sumA R q x0 x).
Proof.
rewrite /proxy /reserve transfer_clipped transfer_capacity transfer_share R'_def q'_def.
by rewrite -f_mul -f_add -f_sub; case: (x == x0).
Qed.

Lemma transfer_excess x0 x :
  excess zeroB addB subB mulB divB lebB sumB R' q' x0 x = f (excess zeroA addA subA mulA divA lebA sumA R q x0 x).
Proof. by rewrite /excess transfer_proxy R'_def -f_sub transfer_pos. Qed.

Lemma transfer_residual x0 x :
  residual zeroB addB subB mulB divB lebB sumB R' q' x0 x =
  f (residual zeroA addA subA mulA divA lebA sumA R q x0 x).
Proof. by rewrite /residual transfer_excess (f_sum (transfer_excess x0)) f_div. Qed.

Lemma transfer_accept x : accept_prob oneB divB lebB R' q' x = f (accept_prob oneA divA lebA R q x).
Proof. by rewrite /accept_prob R'_def q'_def -f_div -f_one transfer_min. Qed.

End State.

Theorem transfer n R R' y : (forall x, R' x = f (R x)) ->
  algorithm_1 zeroB oneB addB subB mulB divB lebB sumB n R' q' y =
  f (algorithm_1 zeroA oneA addA subA mulA divA lebA sumA n R q y).
Proof.
elim: n R R' y => [|n IH] R R' y R'_def //=; rewrite f_add f_mul -(transfer_accept R'_def) -q'_def.
congr (addB _ _); apply: f_sum => x.
by rewrite !f_mul f_sub f_one -q'_def -(transfer_accept R'_def) (IH _ _ _ (transfer_residual R'_def x)).
Qed.

End Transfer.

(* The rule over an ordered field. *)
Section OverAField.
Variables (F : realFieldType) (V : finType).
Local Open Scope ring_scope.
Let sumF (g : V -> F) : F := \sum_x g x.

Let subF (a b : F) : F := a - b.
Let divF (a b : F) : F := a / b.
Let leF (a b : F) : bool := a <= b.

Definition gapF (R q : V -> F) x0 : F := gap subF R q x0.
Definition clippedF (R q : V -> F) x0 x : F := clipped 0 subF *%R leF R q x0 x.
Definition capacityF (R q : V -> F) x0 x : F := capacity 0 subF *%R leF R q x0 x.
Definition reserveF (R q : V -> F) x0 x : F := reserve 0 +%R subF *%R divF leF sumF R q x0 x.
Definition excessF (R q : V -> F) x0 x : F := excess 0 +%R subF *%R divF leF sumF R q x0 x.
Definition residualF (R q : V -> F) x0 x : F := residual 0 +%R subF *%R divF leF sumF R q x0 x.
Definition acceptF (R q : V -> F) x : F := accept_prob 1 divF leF R q x.

(* Algorithm 1 with n candidates, as a sequential rule: the marginal of laws.v is its operational marginal. *)
Fixpoint resispec n (R q : V -> F) : rule F V :=
  if n is n'.+1 then Round q (acceptF R q) (fun x => resispec n' (residualF R q x) q) else Draw R.

Lemma resispec_marginal n R q y :
  algorithm_1 0 1 +%R subF *%R divF leF sumF n R q y = marginal (resispec n R q) y.
Proof.
elim: n R y => [//|n IH] R y /=; congr (_ + _); apply: eq_bigr => x _.
by rewrite IH.
Qed.

Lemma acceptFE R q x : acceptF R q x = Num.min 1 (R x / q x).
Proof. by rewrite /acceptF /accept_prob /min_of minEle. Qed.

Lemma clippedFE R q x0 x : clippedF R q x0 x = if x == x0 then 0 else Num.min ((q x0 - R x0) * q x) (R x).
Proof. by rewrite /clippedF /clipped /min_of minEle. Qed.

Lemma capacityFE R q x0 x : capacityF R q x0 x = if x == x0 then 0 else R x - clippedF R q x0 x.
Proof. by []. Qed.

Lemma reserveFE R q x0 x : reserveF R q x0 x =
  clippedF R q x0 x + (q x0 - R x0 - mass (clippedF R q x0)) / mass (capacityF R q x0) * capacityF R q x0 x.
Proof. by []. Qed.

Lemma excessFE R q x0 x : excessF R q x0 x = pos (R x - (if x == x0 then q x else R x - reserveF R q x0 x)).
Proof. by rewrite pos_def. Qed.

Lemma residualFE R q x0 x : residualF R q x0 x = excessF R q x0 x / mass (excessF R q x0).
Proof. by []. Qed.

End OverAField.

(* The rule over Q, with 3 tokens; all fractions are reduced. *)
Section OverQ.
Local Open Scope Q_scope.

Definition token (i : nat) (lt_i3 : (i < 3)%N) : 'I_3 := Ordinal lt_i3.
Definition sumQ (g : 'I_3 -> Q) : Q :=
  Qred (g (token (isT : 0 < 3)%N) + (g (token (isT : 1 < 3)%N) + g (token (isT : 2 < 3)%N))).

Definition algorithm_1_Q : nat -> ('I_3 -> Q) -> ('I_3 -> Q) -> 'I_3 -> Q :=
  algorithm_1 0 1 (fun a b => Qred (a + b)) (fun a b => Qred (a - b)) (fun a b => Qred (a * b))
    (fun a b => Qred (a / b)) Qle_bool sumQ.

Definition threeQ (a b c : Q) (i : 'I_3) : Q := nth 0 [:: a; b; c] i.
Definition tableQ (g : 'I_3 -> Q) : seq Q :=
  [:: g (token (isT : 0 < 3)%N); g (token (isT : 1 < 3)%N); g (token (isT : 2 < 3)%N)].

End OverQ.

(* Q in an ordered field. *)
Section Embedding.
Variable F : realFieldType.
Local Open Scope ring_scope.

Definition ofZ (z : Z) : F := (int_of_Z z)%:~R.
Definition ofQ (a : Q) : F := ofZ (Qnum a) / ofZ (Zpos (Qden a)).

Lemma ofZD a b : ofZ (Z.add a b) = ofZ a + ofZ b.
Proof. by rewrite /ofZ -intrD -(rmorphD [rmorphism of int_of_Z]). Qed.

Lemma ofZM a b : ofZ (Z.mul a b) = ofZ a * ofZ b.
Proof. by rewrite /ofZ -intrM -(rmorphM [rmorphism of int_of_Z]). Qed.

Lemma ofZN a : ofZ (Z.opp a) = - ofZ a.
Proof. by rewrite /ofZ -mulrNz -(rmorphN [rmorphism of int_of_Z]). Qed.

Lemma ofZ_gt0 d : 0 < ofZ (Zpos d).
Proof. by rewrite /ofZ ltr0z /= ltz_nat; case: (Pos.to_nat d) (Pos2Nat.is_pos d) => // /ssrnat.ltP. Qed.

Lemma ofZ_neq0 d : ofZ (Zpos d) != 0.
Proof. by rewrite gt_eqF ?ofZ_gt0. Qed.

Lemma ofZ_ge0 a : (0 <= ofZ a) = Z.leb 0 a.
Proof. by case: a => [|d|d]; rewrite /ofZ ?ler0z. Qed.

Lemma ofZ_le a b : (ofZ a <= ofZ b) = Z.leb a b.
Proof. by rewrite -subr_ge0 -ofZN -ofZD ofZ_ge0; apply/idP/idP => /Z.leb_le ?; apply/Z.leb_le; lia. Qed.

Lemma ofQ_eq a b : Qeq a b -> ofQ a = ofQ b.
Proof.
rewrite /Qeq /ofQ => /(congr1 ofZ); rewrite !ofZM => eq_ab.
by apply: (mulIf (ofZ_neq0 (Qden a))); rewrite divfK ?ofZ_neq0 // mulrAC -eq_ab mulrK // unitfE ofZ_neq0.
Qed.

Lemma ofQ_red a : ofQ (Qred a) = ofQ a.
Proof. exact/ofQ_eq/Qred_correct. Qed.

Lemma ofQD a b : ofQ (Qplus a b) = ofQ a + ofQ b.
Proof.
rewrite /ofQ /= ofZD !ofZM Pos2Z.inj_mul ofZM.
by field; rewrite !ofZ_neq0.
Qed.

Lemma ofQN a : ofQ (Qopp a) = - ofQ a.
Proof. by rewrite /ofQ /= ofZN mulNr. Qed.

Lemma ofQB a b : ofQ (Qminus a b) = ofQ a - ofQ b.
Proof. by rewrite /Qminus ofQD ofQN. Qed.

Lemma ofQM a b : ofQ (Qmult a b) = ofQ a * ofQ b.
Proof. by rewrite /ofQ /= ofZM Pos2Z.inj_mul ofZM invfM mulrACA. Qed.

Lemma ofQV a : ofQ (Qinv a) = (ofQ a)^-1.
Proof.
case: a => [[|n|n] d]; rewrite /ofQ /=.
- by rewrite /ofZ /= !mul0r invr0.
- by rewrite invfM invrK mulrC.
by rewrite -Pos2Z.opp_pos -[Zneg n]Pos2Z.opp_pos !ofZN invfM invrK mulrC invrN mulrN mulNr.
Qed.

Lemma ofQ_div a b : ofQ (Qdiv a b) = ofQ a / ofQ b.
Proof. by rewrite /Qdiv ofQM ofQV. Qed.

Lemma ofQ_le a b : (ofQ a <= ofQ b) = Qle_bool a b.
Proof.
rewrite /ofQ le_div ?ofZ_gt0 // mulrAC -[leRHS]mulr1.
by rewrite -(mulfV (ofZ_neq0 (Qden a))) mulrA ler_pmul2r ?invr_gt0 ?ofZ_gt0 // -!ofZM ofZ_le.
Qed.

Lemma ofQ_inj a b : ofQ a = ofQ b -> Qeq a b.
Proof.
by move=> eq_ab; apply: Qle_antisym; apply: Qle_bool_imp_le; rewrite -ofQ_le eq_ab lexx.
Qed.

Theorem computed_law n (R q : 'I_3 -> Q) y :
  marginal (resispec n (fun x => ofQ (R x)) (fun x => ofQ (q x))) y = ofQ (algorithm_1_Q n R q y).
Proof.
rewrite -resispec_marginal; apply: transfer => //.
- by rewrite /ofQ /ofZ /= mul0r.
- by rewrite /ofQ /ofZ /= divr1.
- by move=> a b; rewrite ofQ_red ofQD.
- by move=> a b; rewrite ofQ_red ofQB.
- by move=> a b; rewrite ofQ_red ofQM.
- by move=> a b; rewrite ofQ_red ofQ_div.
- exact: ofQ_le.
move=> g h h_def; rewrite !big_ord_recl big_ord0 addr0 !h_def /sumQ ofQ_red !ofQD.
by do ![congr (_ + _)]; congr (ofQ (g _)); apply: val_inj.
Qed.

End Embedding.
